package shop.stock;

import java.util.ArrayList;
import java.util.List;
import shop.Load;

/** A column of 4096 numbers is kept in a List of boxed Longs, for one report. Cured: in an array of long, used again. */
public final class Autoboxing {
    private static final int ROWS = 4096;
    private static final long[] column = new long[ROWS];

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("stock", 1, n -> Load.sink += sick ? sumOfBoxed(n) : sumOfPlain(n));
    }

    private static long sumOfBoxed(long n) {
        List<Long> boxed = new ArrayList<>(ROWS);
        fillBoxed(boxed, n);
        long sum = 0;
        for (Long pieces : boxed) {
            sum += pieces;
        }
        return sum;
    }

    private static void fillBoxed(List<Long> boxed, long n) {
        for (int i = 0; i < ROWS; i++) {
            boxed.add(1000 + n + i);
        }
    }

    private static long sumOfPlain(long n) {
        for (int i = 0; i < ROWS; i++) {
            column[i] = 1000 + n + i;
        }
        long sum = 0;
        for (long pieces : column) {
            sum += pieces;
        }
        return sum;
    }
}
