import java.util.concurrent.locks.LockSupport;
import java.util.concurrent.locks.ReentrantLock;

/** A program with a bit of everything a profiler can see: work, allocation, waiting, a contended monitor and lock. */
public class Sample {
    static final Object monitor = new Object();
    static final ReentrantLock lock = new ReentrantLock();
    static volatile long sink;

    static long work(int n) {
        long x = n;
        for (int i = 0; i < 20000; i++) x = x * 31 + (x >>> 7);
        return x;
    }

    static byte[] allocate(int n) { return new byte[1024 + n % 64]; }

    static void hold() {
        synchronized (monitor) { LockSupport.parkNanos(2_000_000); sink += work(3); }
    }

    static void queue() {
        lock.lock();
        try { LockSupport.parkNanos(1_000_000); sink += work(5); } finally { lock.unlock(); }
    }

    public static void main(String[] args) throws Exception {
        long end = System.nanoTime() + Long.parseLong(args[0]) * 1_000_000L;
        int depth = args.length > 1 ? Integer.parseInt(args[1]) : 3;
        int spread = args.length > 2 ? Integer.parseInt(args[2]) : 1;
        Runnable[] jobs = {
            () -> { while (System.nanoTime() < end) sink += deep(depth, spread, 7); },
            () -> { while (System.nanoTime() < end) sink += allocate((int) sink).length; },
            Sample::holds, Sample::holds, Sample::queues, Sample::queues,
            () -> { try { Thread.sleep(end - System.nanoTime() > 0 ? (end - System.nanoTime()) / 1_000_000 : 0); } catch (InterruptedException e) { } },
        };
        stop = end;
        Thread[] all = new Thread[jobs.length];
        for (int i = 0; i < jobs.length; i++) { all[i] = new Thread(jobs[i], "sample-" + i); all[i].start(); }
        for (Thread t : all) t.join();
    }

    static long stop;
    static void holds() { while (System.nanoTime() < stop) hold(); }
    static void queues() { while (System.nanoTime() < stop) queue(); }

    static int seed = 1;
    static long deep(int d, int spread, int n) {
        if (d == 0) { if (spread > 2) return allocate(n).length; return work(n); }
        if (spread > 1) { seed = seed * 1103515245 + 12345; if (((seed >> 16) & 1) == 0) return left(d, spread, n); }
        return deep(d - 1, spread, n) + 1;
    }
    static long left(int d, int spread, int n) { return deep(d - 1, spread, n) + 2; }
}
