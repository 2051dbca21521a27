package shop.stock;

import shop.Load;

/** Each of 1000 positions of an order is stamped with the time of day. Cured: the order is, once. */
public final class Clocks {
    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("stock", 1, n -> Load.sink += Load.price(n, 1000) + (sick ? stampEach() : stampOnce()));
    }

    private static long stampEach() {
        long sum = 0;
        for (int i = 0; i < 1000; i++) {
            sum += System.currentTimeMillis();
        }
        return sum;
    }

    private static long stampOnce() {
        return System.currentTimeMillis() * 1000;
    }
}
