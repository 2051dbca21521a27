package shop.reports;

import shop.Load;

/** A report of 3000 lines grows by +=, which copies all of it each time. Cured: a StringBuilder of the right size. */
public final class Concatenation {
    private static final int LINES = 3000;

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("reports", 1, n -> Load.sink += report(n, sick));
    }

    private static long report(long n, boolean sick) {
        return Load.price(n, 3000) + (sick ? appendLines() : buildLines()).length();
    }

    private static String appendLines() {
        String text = "";
        for (int i = 0; i < LINES; i++) {
            text += line(i);
        }
        return text;
    }

    private static String buildLines() {
        StringBuilder text = new StringBuilder(LINES);
        for (int i = 0; i < LINES; i++) {
            text.append(line(i));
        }
        return text.toString();
    }

    private static String line(int i) {
        return (i & 1) == 0 ? "x" : "y";
    }
}
