import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLongArray;

/**
 * A JVM whose CPUs are all busy with what programs do: parsing, hashing, sorting, building strings, allocating, and a
 * lock that two threads contend for now and then. Each line on its standard input is answered with the work done so
 * far, so that whoever asks knows that it lives and how fast it is.
 *
 * <p>Usage: Busy THREADS IDLE-THREADS
 */
public class Busy {
    static final int PAD = 16; // a counter a cache line
    static final Object lock = new Object();
    static long shared;

    public static void main(String[] args) throws Exception {
        int threads = Integer.parseInt(args[0]);
        AtomicLongArray done = new AtomicLongArray(threads * PAD);
        for (int i = 0; i < threads; i++) {
            int slot = i * PAD;
            Thread t = new Thread(() -> work(done, slot), "busy-worker-with-a-long-name-" + i);
            t.setDaemon(true);
            t.start();
        }
        for (int i = 0; i < Integer.parseInt(args[1]); i++) {
            Thread t = new Thread(Busy::sleep, "idle-" + i);
            t.setDaemon(true);
            t.start();
        }
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        System.out.println("ready");
        while (in.readLine() != null) {
            long sum = 0;
            for (int i = 0; i < threads; i++) {
                sum += done.get(i * PAD);
            }
            System.out.println(System.nanoTime() + " " + sum);
        }
    }

    static void work(AtomicLongArray done, int slot) {
        long seed = slot + 1;
        for (long n = 1; ; n++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            long got = parse(text(seed)) + sort(seed);
            if (n % 64 == 0) {
                locked(got);
            }
            done.lazySet(slot, n);
        }
    }

    static String text(long seed) {
        StringBuilder b = new StringBuilder();
        for (int i = 0; i < 20; i++) {
            b.append("key").append((seed >>> i) & 63).append('=').append(seed >>> (i + 7)).append(';');
        }
        return b.toString();
    }

    static long parse(String text) {
        Map<String, Long> map = new HashMap<>();
        for (String pair : text.split(";")) {
            int eq = pair.indexOf('=');
            map.merge(pair.substring(0, eq), Long.parseLong(pair.substring(eq + 1)) >>> 8, Long::sum);
        }
        long sum = 0;
        for (long v : map.values()) {
            sum += v;
        }
        return sum;
    }

    static long sort(long seed) {
        int[] a = new int[256];
        for (int i = 0; i < a.length; i++) {
            seed ^= seed << 13;
            seed ^= seed >>> 7;
            seed ^= seed << 17;
            a[i] = (int) seed;
        }
        java.util.Arrays.sort(a);
        return a[128];
    }

    static void locked(long got) {
        synchronized (lock) {
            for (int i = 0; i < 1000; i++) {
                shared = shared * 31 + got + i;
            }
        }
    }

    static void sleep() {
        try {
            Thread.sleep(Long.MAX_VALUE);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }
}
