import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.security.MessageDigest;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.*;

/** One fault in Java: Shop FAULT sick|cured PORT BACKEND. README.md beside it says what each is. */
public class Shop {
    static boolean sick;
    static String[] backend;

    interface Handler { void handle() throws Exception; }

    // --- regex: two levels of repetition, since JDK 9 and newer remember where one of them failed
    static Pattern names;
    static final String TEXT = "one of the names" + "a".repeat(10);

    static void matchNames() { names.matcher(TEXT).lookingAt(); }

    // --- lock
    static final Object seats = new Object();
    static int booked;

    static void audit() throws Exception { Thread.sleep(5); }

    static void bookSeat() throws Exception {
        if (!sick) audit();
        synchronized (seats) {
            booked++;
            if (sick) audit();
        }
    }

    // --- pool
    static BlockingQueue<Socket> pool = new LinkedBlockingQueue<>();

    static void openPool() throws Exception {
        for (int i = 0; i < (sick ? 2 : 16); i++) pool.add(new Socket(backend[0], Integer.parseInt(backend[1])));
    }

    static void fetchPrice() throws Exception {
        Socket s = pool.take();
        try {
            s.getOutputStream().write("price\n".getBytes());
            s.getInputStream().read(new byte[64]);
        } finally {
            pool.add(s);
        }
    }

    // --- gc: what lives nearly fills the heap
    static final Queue<Object> kept = new ConcurrentLinkedQueue<>();
    static final AtomicInteger made = new AtomicInteger();

    static void makeOrders() {
        for (int i = 0; i < (sick ? 2000 : 20); i++) {
            List<int[]> order = new ArrayList<>();
            for (int n = 0; n < 10; n++) order.add(new int[8]);
            kept.add(order);
            if (made.incrementAndGet() > (sick ? 65000 : 650)) kept.poll();
        }
    }

    // --- sized
    static ExecutorService workers;

    static Object digestPart() throws Exception {
        byte[] data = new byte[1 << 16];
        for (int i = 0; i < 50; i++) data = Arrays.copyOf(MessageDigest.getInstance("MD5").digest(data), 1 << 16);
        return data;
    }

    static void digestAll() throws Exception {
        workers.invokeAll(Collections.nCopies(8, Shop::digestPart));
    }

    // --- loop
    static ScheduledExecutorService timer = Executors.newScheduledThreadPool(1);

    static void retryLater(SocketChannel c) throws Exception {
        if (sick) {
            Thread.sleep(20);
            c.write(ByteBuffer.wrap("ok\n".getBytes()));
        } else {
            timer.schedule(() -> c.write(ByteBuffer.wrap("ok\n".getBytes())), 20, TimeUnit.MILLISECONDS);
        }
    }

    static void loop(int port) throws Exception {
        Selector selector = Selector.open();
        ServerSocketChannel listener = ServerSocketChannel.open().bind(new InetSocketAddress("127.0.0.1", port));
        listener.configureBlocking(false);
        listener.register(selector, SelectionKey.OP_ACCEPT);
        ByteBuffer buffer = ByteBuffer.allocate(64);
        while (true) {
            selector.select();
            for (Iterator<SelectionKey> i = selector.selectedKeys().iterator(); i.hasNext(); i.remove()) {
                SelectionKey key = i.next();
                if (key.isAcceptable()) {
                    SocketChannel c = listener.accept();
                    c.configureBlocking(false);
                    c.register(selector, SelectionKey.OP_READ);
                } else if (((SocketChannel) key.channel()).read(buffer.clear()) < 0) {
                    key.channel().close();
                } else {
                    retryLater((SocketChannel) key.channel());
                }
            }
        }
    }

    static void serve(Socket s, Handler h) {
        try (s) {
            InputStream in = s.getInputStream();
            for (byte[] b = new byte[64]; in.read(b) > 0;) {
                h.handle();
                s.getOutputStream().write("ok\n".getBytes());
            }
        } catch (Exception e) {
            System.err.println(e);
        }
    }

    public static void main(String[] args) throws Exception {
        sick = args[1].equals("sick");
        int port = Integer.parseInt(args[2]);
        backend = args[3].split(":");
        names = Pattern.compile(sick ? "((\\w+\\s?)+,?)+;" : "\\w++(?:(?:\\s,?|,)\\w++)*+(?:\\s,?|,)?;");
        workers = Executors.newFixedThreadPool(sick ? 4 * Integer.parseInt(System.getenv("HOST_CPUS")) : 1);
        Handler h = Map.<String, Handler>of("regex", Shop::matchNames, "lock", Shop::bookSeat, "pool",
            Shop::fetchPrice, "gc", Shop::makeOrders, "sized", Shop::digestAll, "loop", () -> { }).get(args[0]);
        if (args[0].equals("loop")) loop(port);
        if (args[0].equals("pool")) openPool();
        ExecutorService threads = Executors.newCachedThreadPool();
        try (ServerSocket listener = new ServerSocket(port, 128, InetAddress.getByName("127.0.0.1"))) {
            while (true) {
                Socket s = listener.accept();
                threads.execute(() -> serve(s, h));
            }
        }
    }
}
