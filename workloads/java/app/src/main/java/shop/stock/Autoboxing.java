package shop.stock;

import java.util.HashMap;
import java.util.Map;
import shop.Load;

/** Pieces by item number are counted in a Map of boxed Longs. Cured: in an array of long. */
public final class Autoboxing {
    private static final int ITEMS = 4096;
    private final Map<Long, Long> boxed = new HashMap<>();
    private final long[] plain = new long[ITEMS];

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Autoboxing stock = new Autoboxing();
        Load.run("stock", 1, n -> Load.sink += sick ? stock.countBoxed(n) : stock.countPlain(n));
    }

    private long countBoxed(long n) {
        for (long i = 0; i < ITEMS; i++) {
            addBoxed(1000 + i, n + i);
        }
        return boxed.size();
    }

    private void addBoxed(Long item, Long pieces) {
        boxed.merge(item, pieces, Long::sum);
    }

    private long countPlain(long n) {
        for (int i = 0; i < ITEMS; i++) {
            plain[i] += n + i;
        }
        return plain.length;
    }
}
