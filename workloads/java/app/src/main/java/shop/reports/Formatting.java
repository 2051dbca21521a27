package shop.reports;

import shop.Load;

/** A key is made with String.format, millions of times. Cured: by concatenation. */
public final class Formatting {
    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("reports", 1, n -> Load.sink += Load.price(n, 100) + (sick ? formatKey(n) : joinKey(n)).length());
    }

    private static String formatKey(long n) {
        return String.format("order-%d/%s", n, "kettle");
    }

    private static String joinKey(long n) {
        return "order-" + n + "/" + "kettle";
    }
}
