package shop.audit;

import shop.Load;

/** Debug output that was left in prints to System.out, from three threads. Cured: it is gone. */
public final class Stdout {
    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("orders", 3, n -> Load.sink += place(n, sick));
    }

    private static long place(long n, boolean sick) {
        long price = Load.price(n, 1000);
        if (sick) {
            debug(n, price);
        }
        return price;
    }

    private static void debug(long n, long price) {
        System.out.println("order " + n + " price " + price);
    }
}
