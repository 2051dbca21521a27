package shop.orders;

import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import shop.Load;

/** Each of 100 orders a second makes a pool for its mail, and nobody shuts it down. Cured: one pool for all. */
public final class ThreadLeak {
    private final ExecutorService shared = newPool();
    private final boolean sick;

    ThreadLeak(boolean sick) {
        this.sick = sick;
    }

    public static void main(String[] args) {
        ThreadLeak shop = new ThreadLeak(Load.sick(args));
        Load.paced("orders", 1, 100, n -> Load.sink += shop.place(n));
    }

    private long place(long n) throws Exception {
        Future<Long> mail = mailer().submit(() -> Load.price(n, 1000));
        return mail.get();
    }

    private ExecutorService mailer() {
        return sick ? newPool() : shared;
    }

    private static ExecutorService newPool() {
        return Executors.newFixedThreadPool(2);
    }
}
