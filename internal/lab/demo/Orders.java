import java.net.Socket;
import java.util.HashMap;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Orders of a shop: a clerk looks up the article of each, and books it at the stock's server on a connection of its own.
 * When it is ended it says how long they took.
 */
final class Orders {
    private static final int SENDERS = 64; // enough that none waits for another while SYNs are sent again after 1 s
    private static final int ARTICLES = 400_000; // looked through one by one they take some 8 ms
    private static final int REQUEST = 64; // bytes that the stock's server reads, and sends back

    private final String stock;
    private final int port;
    private final boolean sick;
    private final String[] articles = new String[ARTICLES];
    private final Map<String, Integer> places = new HashMap<>();
    private final Queue<Long> took = new ConcurrentLinkedQueue<>(); // nanoseconds of each order

    private Orders(String stock, int port, boolean sick) {
        this.stock = stock;
        this.port = port;
        this.sick = sick;
        for (int i = 0; i < ARTICLES; i++) {
            articles[i] = name(i);
            places.put(articles[i], i);
        }
    }

    public static void main(String[] args) throws InterruptedException {
        new Orders(args[0], Integer.parseInt(args[1]), args[2].equals("sick")).run(Integer.parseInt(args[3]));
    }

    /** An order comes when it comes, however long those before it take. */
    private void run(int perSecond) throws InterruptedException {
        Runtime.getRuntime().addShutdownHook(new Thread(this::say));
        ExecutorService clerk = Executors.newSingleThreadExecutor(r -> new Thread(r, "clerk"));
        ExecutorService senders = Executors.newFixedThreadPool(SENDERS);
        long due = System.nanoTime();
        for (int n = 0;; n++) {
            int order = n;
            long came = due;
            clerk.execute(() -> {
                byte[] request = written(order);
                senders.execute(() -> book(request, came));
            });
            due += TimeUnit.SECONDS.toNanos(1) / perSecond;
            TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
        }
    }

    private void say() {
        long[] all = took.stream().mapToLong(Long::longValue).sorted().toArray();
        if (all.length > 0) {
            System.out.printf("%d orders: half of them took %.0f ms and more, a tenth %.0f ms and more%n", all.length,
                    all[all.length / 2] / 1e6, all[all.length * 9 / 10] / 1e6);
        }
    }

    private byte[] written(int order) {
        String article = name(ARTICLES - 1 - order % 1000);
        byte[] out = new byte[REQUEST];
        out[0] = (byte) (sick ? lookedThrough(article) : places.get(article));
        return out;
    }

    private int lookedThrough(String article) {
        for (int i = 0; i < articles.length; i++) {
            if (articles[i].equals(article)) {
                return i;
            }
        }
        return -1;
    }

    private static String name(int i) {
        return "article " + (ARTICLES + i); // all as long as each other, so that equals compares their letters
    }

    private void book(byte[] request, long came) {
        try (Socket s = new Socket(stock, port)) {
            s.getOutputStream().write(request);
            s.getInputStream().readNBytes(REQUEST);
            took.add(System.nanoTime() - came);
        } catch (java.io.IOException e) {
            System.err.println("orders: book at " + stock + ": " + e.getMessage());
        }
    }
}
