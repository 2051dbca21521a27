import java.util.ArrayList;
import java.util.List;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Adds up a tree of categories, and logs each of them. */
final class Main {
    /** A category of the shop. */
    record Category(int id, List<Category> below) {}

    private static final Logger LOG = LoggerFactory.getLogger(Main.class);
    private static int made;

    public static void main(String[] args) throws Exception {
        Category shop = category(60);
        Web.serve("/categories", 4, () -> sum(shop) + "\n");
    }

    private static Category category(int depth) {
        List<Category> below = new ArrayList<>();
        Category c = new Category(made++, below);
        if (depth > 0) {
            below.add(category(depth - 1));
            for (int i = 0; i < 8; i++) {
                below.add(new Category(made++, List.of()));
            }
        }
        return c;
    }

    private static int sum(Category c) {
        LOG.info("category {} with {} below it", c.id(), c.below().size());
        int sum = c.id();
        for (Category b : c.below()) {
            sum += sum(b);
        }
        return sum;
    }
}
