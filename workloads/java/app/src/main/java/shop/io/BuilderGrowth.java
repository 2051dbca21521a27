package shop.io;

import shop.Load;

/** Pages of 128 KiB are rendered into builders that start at 16 characters and grow. Cured: they start at the right size. */
public final class BuilderGrowth {
    private static final int PAGE = 128 << 10;
    private static final String PART = "<li>kettle</li>".repeat(280); // 4 KiB

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("pages", 1, n -> Load.sink += render(n, sick));
    }

    private static long render(long n, boolean sick) {
        StringBuilder page = sick ? new StringBuilder() : new StringBuilder(PAGE + PART.length());
        return Load.price(n, 5000) + fill(page);
    }

    private static long fill(StringBuilder page) {
        while (page.length() < PAGE) {
            page.append(PART);
        }
        return page.charAt(page.length() / 2);
    }
}
