package shop.catalog;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.List;
import shop.Load;

/** Every request makes its own ObjectMapper, whose caches of serializers are then empty. Cured: one for all. */
public final class ObjectMappers {
    private static final ObjectMapper SHARED = new ObjectMapper();
    private static final String JSON = "{\"name\":\"kettle\",\"price\":4999,\"tags\":[\"kitchen\",\"steel\"]}";

    public static final class Item {
        public String name;
        public int price;
        public List<String> tags;
    }

    private final boolean sick;

    ObjectMappers(boolean sick) {
        this.sick = sick;
    }

    public static void main(String[] args) {
        ObjectMappers catalog = new ObjectMappers(Load.sick(args));
        Load.run("catalog", 1, n -> Load.sink += catalog.update(n));
    }

    private long update(long n) throws IOException {
        Item item = parse();
        item.price += Load.price(n, 300);
        return render(item).length();
    }

    private Item parse() throws IOException {
        return mapper().readValue(JSON, Item.class);
    }

    private String render(Item item) throws IOException {
        return mapper().writeValueAsString(item);
    }

    private ObjectMapper mapper() {
        return sick ? new ObjectMapper() : SHARED;
    }
}
