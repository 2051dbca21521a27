import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;

/** A service of one path: /read?KIND=N reads the document of that kind and size. Documents are made once and kept. */
final class Server<D> {
    interface Make<D> {
        D document(String kind, int size);
    }

    interface Read<D> {
        String answer(D document) throws Exception;
    }

    private final Map<String, D> documents = new ConcurrentHashMap<>();
    private final Make<D> make;
    private final Read<D> read;

    private Server(Make<D> make, Read<D> read) {
        this.make = make;
        this.read = read;
    }

    static <D> void start(Make<D> make, Read<D> read) throws IOException {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 256);
        server.setExecutor(Executors.newFixedThreadPool(8));
        server.createContext("/read", new Server<>(make, read)::handle);
        server.start();
    }

    private void handle(HttpExchange exchange) throws IOException {
        String[] query = exchange.getRequestURI().getQuery().split("=");
        D document = documents.computeIfAbsent(query[0] + "=" + query[1],
            key -> make.document(query[0], Integer.parseInt(query[1])));
        String text;
        try {
            text = read.answer(document);
        } catch (Exception e) {
            text = "not valid: " + e.getMessage();
        }
        byte[] body = (text.substring(0, Math.min(text.length(), 200)) + "\n").getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
