package shop.orders;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import shop.Load;

/**
 * An item that is out of stock is an ordinary answer, and comes as an exception through the 60 frames of an application
 * server. Cured: the answer is a value.
 */
public final class Exceptions {
    static final int POSITIONS = 300;
    private final Stock stock = new Stock();

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Exceptions shop = new Exceptions();
        Load.run("orders", 1, n -> Load.sink += shop.filter(60, sick, n));
    }

    /** The filters and interceptors that a request goes through. */
    private long filter(int depth, boolean sick, long n) {
        if (depth > 0) {
            return filter(depth - 1, sick, n) + 1;
        }
        return Load.price(n, POSITIONS) + (sick ? placeOrFail(n) : placeOrSay(n));
    }

    private long placeOrFail(long n) {
        try {
            return stock.reserve(n);
        } catch (OutOfStock e) {
            return 0;
        }
    }

    private long placeOrSay(long n) {
        return stock.reserveIfThere(n);
    }

    static final class OutOfStock extends Exception {
        OutOfStock(String item) {
            super(item);
        }
    }

    static final class Stock {
        private final Map<Long, Long> items = new ConcurrentHashMap<>();

        long reserve(long item) throws OutOfStock {
            Long there = items.get(item);
            if (there == null) {
                throw new OutOfStock("sold out");
            }
            return there;
        }

        long reserveIfThere(long item) {
            Long there = items.get(item);
            return there == null ? 0 : there;
        }
    }
}
