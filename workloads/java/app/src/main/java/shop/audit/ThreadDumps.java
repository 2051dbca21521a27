package shop.audit;

import java.util.concurrent.locks.LockSupport;
import shop.Load;

/**
 * Three threads book orders, and note the number of threads that wait with each: they dump the stacks of all threads for
 * it, which stops them all. A hundred others wait for work. Cured: one order in a hundred thousand is noted.
 */
public final class ThreadDumps {
    private static final int WAITING = 100;

    public static void main(String[] args) {
        int noted = Load.sick(args) ? 1 : 100_000;
        for (int i = 1; i <= WAITING; i++) {
            Thread worker = new Thread(LockSupport::park, "worker-" + i);
            worker.setDaemon(true);
            worker.start();
        }
        Load.run("orders", 3, n -> {
            Load.sink += Load.price(n, 5000);
            if (n % noted == 0) {
                Load.sink += waiting();
            }
        });
    }

    private static long waiting() {
        return Thread.getAllStackTraces().keySet().stream()
                .filter(t -> t.getState() == Thread.State.WAITING).count();
    }
}
