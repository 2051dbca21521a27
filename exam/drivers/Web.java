import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.Executors;

/** Serves one page with the server of the JDK; a page that fails is a 503. */
final class Web {
    /** What answers a request. */
    interface Page {
        String text() throws Exception;
    }

    static void serve(String path, int threads, Page page) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 256);
        server.setExecutor(Executors.newFixedThreadPool(threads));
        server.createContext(path, exchange -> {
            int status = 200;
            byte[] body = {};
            try {
                body = page.text().getBytes(StandardCharsets.UTF_8);
            } catch (Exception e) {
                status = 503;
            }
            exchange.sendResponseHeaders(status, body.length == 0 ? -1 : body.length);
            exchange.getResponseBody().write(body);
            exchange.close();
        });
        server.start();
    }
}
