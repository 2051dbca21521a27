import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** A catalogue in JSON, a product to a line. */
final class Main {
    /** What is sold. */
    public record Product(int id, String name, Price price, List<Shelf> shelves, Map<String, String> labels) {}

    /** What it costs. */
    public record Price(long amount, String currency, boolean taxed) {}

    /** Where it is. */
    public record Shelf(String hall, int row, int level) {}

    private static final ObjectMapper MAPPER = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        List<Product> products = new ArrayList<>();
        for (int i = 0; i < 25; i++) {
            products.add(new Product(i, "product " + i, new Price(i * 7, "EUR", true),
                List.of(new Shelf("A", i, 1), new Shelf("B", i, 2)), Map.of("colour", "red")));
        }
        boolean one = args[0].equals("1");
        Web.serve("/products", 4, () -> {
            StringBuilder text = new StringBuilder();
            for (Product p : products) {
                text.append((one ? MAPPER : new ObjectMapper()).writeValueAsString(p)).append('\n');
            }
            return text.toString();
        });
    }
}
