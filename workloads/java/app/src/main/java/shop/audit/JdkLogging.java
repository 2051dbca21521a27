package shop.audit;

import java.util.logging.Level;
import java.util.logging.Logger;
import shop.Load;

/** java.util.logging prints to the console at INFO, with the caller, whom a stack walk finds. Cured: the level is WARNING. */
public final class JdkLogging {
    private static final Logger log = Logger.getLogger("shop.orders");

    public static void main(String[] args) {
        log.setLevel(Load.sick(args) ? Level.INFO : Level.WARNING);
        Load.run("orders", 3, n -> Load.sink += place(n));
    }

    private static long place(long n) {
        long price = Load.price(n, 1000);
        confirm(n, price);
        return price;
    }

    private static void confirm(long n, long price) {
        log.log(Level.INFO, "order {0} placed for {1} cents", new Object[] {n, price});
    }
}
