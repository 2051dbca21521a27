import java.util.Arrays;
import java.util.Locale;
import sun.misc.Signal;

/** Does a job at a rate, and prints throughput and p99 (from when each job was due) on SIGINT. */
final class Paced {
    private static volatile boolean stopped;

    static void run(Runnable job, double perSecond) throws InterruptedException {
        Signal.handle(new Signal("INT"), s -> stopped = true);
        double[] took = new double[100_000];
        int done = 0;
        long start = System.nanoTime();
        while (!stopped && done < took.length) {
            long due = start + (long) (done / perSecond * 1e9);
            long wait = due - System.nanoTime();
            if (wait > 0) {
                Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
            }
            job.run();
            took[done++] = (System.nanoTime() - due) / 1e9;
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        double[] sorted = Arrays.copyOf(took, done);
        Arrays.sort(sorted);
        System.out.printf(Locale.ROOT, "throughput %.3f%np99 %.6fs%n", done / seconds,
            done == 0 ? seconds : sorted[(int) (done * 0.99)]);
        System.exit(0);
    }
}
