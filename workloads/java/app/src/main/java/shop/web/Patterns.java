package shop.web;

import java.util.regex.Pattern;
import shop.Load;

/** Every request compiles the pattern of a valid address again, and splits by one. Cured: compiled once. */
public final class Patterns {
    private static final String ADDRESS = "^[\\w.+-]+@[\\w-]+(\\.[\\w-]+)*\\.(com|org|net|example)$";
    private static final Pattern COMPILED = Pattern.compile(ADDRESS);
    private static final Pattern COMMA = Pattern.compile("\\s*,\\s*");

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("web", 1, n -> Load.sink += Load.price(n, 200) + subscribe("mo.ritz@shop.example", "tea, cups , pots", sick));
    }

    private static long subscribe(String address, String topics, boolean sick) {
        boolean valid = sick ? address.matches(ADDRESS) : COMPILED.matcher(address).matches();
        String[] topic = sick ? topics.split("\\s*,\\s*") : COMMA.split(topics);
        return (valid ? 1 : 0) + topic.length;
    }
}
