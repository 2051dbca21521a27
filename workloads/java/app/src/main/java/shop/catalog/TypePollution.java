package shop.catalog;

import shop.Load;

/**
 * Two threads ask of the same objects whether they are one interface and then another, by turns. HotSpot before 21.0.x remembers
 * one answer for each class, which is written on every such turn and shared by all CPUs (JDK-8180450). Cured: one question,
 * for a class, that needs no such memory.
 */
public final class TypePollution {
    interface Priced {
        long price();
    }

    interface Named {
        long name();
    }

    static class Item implements Named, Priced {
        public long price() {
            return 49;
        }

        public long name() {
            return 7;
        }
    }

    static final class Kettle extends Item {
    }

    static final class Cup extends Item {
        @Override
        public long price() {
            return 5;
        }
    }

    static final class Pot extends Item {
        @Override
        public long price() {
            return 9;
        }
    }

    static final class Plain {
    }

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Object[] items = new Object[512];
        for (int i = 0; i < items.length; i++) {
            items[i] = i % 3 == 0 ? new Kettle() : i % 3 == 1 ? new Cup() : new Pot();
        }
        items[511] = new Plain();
        Load.run("catalog", 2, n -> Load.sink = Load.price(n, 100) + (sick ? sumByInterface(items) : sumByClass(items)));
    }

    private static long sumByInterface(Object[] items) {
        long sum = 0;
        for (Object item : items) {
            if (isPriced(item) && isNamed(item)) {
                sum++;
            }
        }
        return sum;
    }

    private static boolean isPriced(Object item) {
        return item instanceof Priced;
    }

    private static boolean isNamed(Object item) {
        return item instanceof Named;
    }

    private static long sumByClass(Object[] items) {
        long sum = 0;
        for (Object item : items) {
            if (item instanceof Item) {
                sum++;
            }
        }
        return sum;
    }
}
