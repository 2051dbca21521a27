import com.github.benmanes.caffeine.cache.Cache;
import com.github.benmanes.caffeine.cache.Caffeine;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.rmi.Remote;
import java.rmi.RemoteException;
import java.rmi.registry.LocateRegistry;
import java.rmi.server.UnicastRemoteObject;
import java.util.concurrent.Executors;

/** An advertisement service with a cache of its products, which other services count over RMI. */
final class Main {
    /** What is asked over RMI. */
    public interface Counter extends Remote {
        long count() throws RemoteException;
    }

    private static Counter counter; // an exported object that nobody refers to is collected

    private static final int PRODUCTS = 1_500_000;

    public static void main(String[] args) throws Exception {
        Cache<Integer, String> products = Caffeine.newBuilder().maximumSize(PRODUCTS).build();
        for (int i = 0; i < PRODUCTS; i++) {
            products.put(i, "product " + i);
        }
        counter = products::estimatedSize;
        LocateRegistry.createRegistry(1099).rebind("products", UnicastRemoteObject.exportObject(counter, 0));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 256);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/ad", exchange -> {
            StringBuilder text = new StringBuilder();
            for (int i = 0; i < 20; i++) {
                text.append(products.getIfPresent((int) (System.nanoTime() % PRODUCTS))).append('\n');
            }
            byte[] body = text.toString().getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
