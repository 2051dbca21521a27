package shop;

import java.util.ArrayDeque;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * Runs a program's operation for ever, and prints on SIGINT or SIGTERM how many operations a second were done in the last
 * five seconds. The first argument of every program says whether it is to be {@code sick} or {@code cured}.
 */
public final class Load {
    /** One operation. The number is the operation's own: 0, 1, 2, … on each thread. */
    public interface Operation {
        void run(long n) throws Exception;
    }

    private static final AtomicLong[] done = new AtomicLong[64];
    private static final int WINDOW_SECONDS = 5;
    /** What operations give, so that no compiler removes them. */
    public static volatile long sink;

    private Load() {
    }

    public static boolean sick(String[] args) {
        if (args.length == 0 || !(args[0].equals("sick") || args[0].equals("cured"))) {
            throw new IllegalArgumentException("want sick or cured as the first argument");
        }
        return args[0].equals("sick");
    }

    /** As fast as possible, on threads named NAME-1, NAME-2, … */
    public static void run(String name, int threads, Operation operation) {
        paced(name, threads, 0, operation);
    }

    /** So many operations a second, over all threads; 0: as fast as possible. */
    public static void paced(String name, int threads, double rate, Operation operation) {
        for (int i = 0; i < done.length; i++) {
            done[i] = new AtomicLong();
        }
        for (int i = 0; i < threads; i++) {
            AtomicLong counter = done[i];
            new Thread(() -> loop(counter, rate / threads, operation), name + "-" + (i + 1)).start();
        }
        meter();
    }

    private static void loop(AtomicLong counter, double rate, Operation operation) {
        long start = System.nanoTime();
        try {
            for (long n = 0; ; n++) {
                if (rate > 0) {
                    awaitDue(start + (long) (n / rate * 1e9));
                }
                operation.run(n);
                counter.lazySet(n + 1);
            }
        } catch (Exception e) {
            e.printStackTrace();
            System.exit(1);
        }
    }

    private static void awaitDue(long due) {
        for (long wait; (wait = due - System.nanoTime()) > 0; ) {
            LockSupport.parkNanos(wait);
        }
    }

    /** Prints the throughput at the end, which is a signal. */
    private static void meter() {
        ArrayDeque<long[]> samples = new ArrayDeque<>();
        Thread meter = new Thread(() -> {
            while (true) {
                synchronized (samples) {
                    samples.add(new long[] {System.nanoTime(), total()});
                    if (samples.size() > WINDOW_SECONDS + 1) {
                        samples.remove();
                    }
                }
                LockSupport.parkNanos(1_000_000_000L);
            }
        }, "meter");
        meter.setDaemon(true);
        meter.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            synchronized (samples) {
                System.out.printf("operations/s: %.3f%n", rate(samples.getFirst()));
                System.out.flush();
            }
        }));
    }

    /** Fewer operations than these in the window are too few to count: they are timed from the end of one to that of another. */
    private static final long FEW = 20;
    private static volatile long firstEnd;
    private static volatile long lastEnd;

    /** An operation of which there are but some in the window, such as one that takes seconds: each one's end is timed. */
    public static Operation timed(Operation operation) {
        return n -> {
            operation.run(n);
            lastEnd = System.nanoTime();
            if (n == 0) {
                firstEnd = lastEnd;
            }
        };
    }

    /** The throughput since a sample of time and operations. */
    private static double rate(long[] from) {
        long since = total() - from[1];
        if (since < FEW && lastEnd > firstEnd) {
            return (total() - 1) / ((lastEnd - firstEnd) / 1e9);
        }
        return since / ((System.nanoTime() - from[0]) / 1e9);
    }

    private static long total() {
        long sum = 0;
        for (AtomicLong counter : done) {
            sum += counter.get();
        }
        return sum;
    }

    /** An operation's share of ordinary work, which is no bottleneck: so many prices, each some nanoseconds. */
    public static long price(long order, int positions) {
        long sum = 0;
        long x = order * 0x9E3779B97F4A7C15L + 1;
        for (int i = 0; i < positions; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            sum += (x & 0xFFFF) % 997;
        }
        return sum;
    }

    public static int random(int bound) {
        return ThreadLocalRandom.current().nextInt(bound);
    }
}
