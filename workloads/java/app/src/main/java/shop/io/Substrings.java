package shop.io;

import shop.Load;

/**
 * A reader takes a document apart by cutting off what it has read, and so copies the rest for each token. Cured: it keeps an
 * index and cuts out tokens only.
 */
public final class Substrings {
    private static final String DOCUMENT = "sku-0001;".repeat(2000);

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("import", 1, n -> Load.sink += Load.price(n, 20_000) + (sick ? readByCutting() : readByIndex()));
    }

    private static long readByCutting() {
        long sum = 0;
        for (String rest = DOCUMENT; !rest.isEmpty(); ) {
            int end = rest.indexOf(';');
            sum += end;
            rest = cut(rest, end + 1);
        }
        return sum;
    }

    private static String cut(String text, int from) {
        return text.substring(from);
    }

    private static long readByIndex() {
        long sum = 0;
        for (int at = 0; at < DOCUMENT.length(); ) {
            int end = DOCUMENT.indexOf(';', at);
            sum += end - at;
            at = end + 1;
        }
        return sum;
    }
}
