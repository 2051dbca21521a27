import java.net.Socket;
import java.util.Arrays;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * Orders of a shop: each is written as text, and booked at the stock's server on a connection of its own. When it is
 * ended it says how long they took.
 */
final class Orders {
    private static final int SENDERS = 64; // enough that none waits for another while SYNs are sent again after 1 s
    private static final int LINES = 3000; // of an order: appended one by one they copy 70 MB, some 10 ms of a CPU
    private static final int REQUEST = 64; // bytes that the stock's server reads, and sends back

    private final String stock;
    private final int port;
    private final boolean sick;
    private final Queue<Long> took = new ConcurrentLinkedQueue<>(); // nanoseconds of each order

    private Orders(String stock, int port, boolean sick) {
        this.stock = stock;
        this.port = port;
        this.sick = sick;
    }

    public static void main(String[] args) throws InterruptedException {
        new Orders(args[0], Integer.parseInt(args[1]), args[2].equals("sick")).run(Integer.parseInt(args[3]));
    }

    /** An order comes when it comes, however long those before it take. */
    private void run(int perSecond) throws InterruptedException {
        Runtime.getRuntime().addShutdownHook(new Thread(this::say));
        ExecutorService senders = Executors.newFixedThreadPool(SENDERS);
        long due = System.nanoTime();
        for (;;) {
            long came = due;
            senders.execute(() -> order(came));
            due += TimeUnit.SECONDS.toNanos(1) / perSecond;
            TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
        }
    }

    private void order(long came) {
        book(sick ? appended() : built());
        took.add(System.nanoTime() - came);
    }

    private void say() {
        long[] all = took.stream().mapToLong(Long::longValue).sorted().toArray();
        if (all.length > 0) {
            System.out.printf("%d orders: half of them took %.1f ms at most, the slowest tenth %.1f ms and more%n",
                    all.length, all[all.length / 2] / 1e6, all[all.length * 9 / 10] / 1e6);
        }
    }

    private static String appended() {
        String text = "";
        for (int i = 0; i < LINES; i++) {
            text += line(i);
        }
        return text;
    }

    private static String built() {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < LINES; i++) {
            text.append(line(i));
        }
        return text.toString();
    }

    private static String line(int i) {
        return (i & 1) == 0 ? "one bolt of M8;\n" : "two nuts of M8;\n";
    }

    private void book(String text) {
        byte[] request = Arrays.copyOf(text.getBytes(), REQUEST);
        try (Socket s = new Socket(stock, port)) {
            s.getOutputStream().write(request);
            s.getInputStream().readNBytes(REQUEST);
        } catch (java.io.IOException e) {
            System.err.println("orders: book at " + stock + ": " + e.getMessage());
        }
    }
}
