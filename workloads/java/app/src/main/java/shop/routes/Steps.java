package shop.routes;

/** The steps of a route: each looks at every line, and takes those that have a price and a tax. */
interface Steps {
    int COUNT = 10;

    /** How many lines are for this step. */
    long take(Object[] lines);

    static Steps of(String checks) {
        return checks.equals("interfaces") ? Steps::byInterface : Steps::byClass;
    }

    static long byInterface(Object[] lines) {
        long taken = 0;
        for (Object line : lines) {
            if (isPriced(line) && isTaxed(line)) {
                taken++;
            }
        }
        return taken;
    }

    private static boolean isPriced(Object line) {
        return line instanceof Priced;
    }

    private static boolean isTaxed(Object line) {
        return line instanceof Taxed;
    }

    static long byClass(Object[] lines) {
        long taken = 0;
        for (Object line : lines) {
            if (line instanceof Line) {
                taken++;
            }
        }
        return taken;
    }
}
