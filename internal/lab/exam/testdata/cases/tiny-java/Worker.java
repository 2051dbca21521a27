import java.util.concurrent.atomic.AtomicLong;
import org.apache.commons.lang3.StringUtils;

/** Does jobs for as long as it runs, and says how many when it is interrupted. */
public class Worker {
    static int job(int size) {
        return StringUtils.repeat("ab", size).length();
    }

    public static void main(String[] args) throws Exception {
        AtomicLong jobs = new AtomicLong();
        long began = System.nanoTime();
        Runtime.getRuntime().addShutdownHook(new Thread(() ->
            System.out.printf("jobs/s: %.2f%n", jobs.get() / ((System.nanoTime() - began) / 1e9))));
        int size = Integer.parseInt(args[0]);
        while (true) {
            for (int i = 0; i < 20; i++) {
                job(size);
            }
            jobs.incrementAndGet();
            Thread.sleep(1);
        }
    }
}
