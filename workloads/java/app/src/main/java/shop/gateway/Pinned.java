package shop.gateway;

import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.locks.ReentrantLock;
import shop.Load;

/**
 * A server with a virtual thread for each request, which asks a backend at 127.0.0.1:9000 while it has the lock of the
 * session in a synchronized method: until JDK 24 that pins its carrier. Cured: the lock is a ReentrantLock.
 */
public final class Pinned {
    private static final Queue<Backend> idle = new ConcurrentLinkedQueue<>();
    private final ReentrantLock lock = new ReentrantLock();

    public static void main(String[] args) throws Exception {
        boolean sick = Load.sick(args);
        byte[] answer = "in stock\n".getBytes();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 1024);
        server.setExecutor(virtualThreads());
        server.createContext("/", exchange -> {
            Pinned session = new Pinned();
            Load.sink += sick ? session.stock() : session.stockByLock();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
        });
        server.start();
    }

    /** JDK 21 has this method; the other programs run on 11, too. */
    private static Executor virtualThreads() throws ReflectiveOperationException {
        return (Executor) Executors.class.getMethod("newVirtualThreadPerTaskExecutor").invoke(null);
    }

    private synchronized long stock() throws IOException {
        return ask();
    }

    private long stockByLock() throws IOException {
        lock.lock();
        try {
            return ask();
        } finally {
            lock.unlock();
        }
    }

    private static long ask() throws IOException {
        Backend backend = idle.poll();
        if (backend == null) {
            backend = new Backend("127.0.0.1", 9000);
        }
        long stock = backend.ask();
        idle.add(backend);
        return stock;
    }
}
