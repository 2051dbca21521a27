package patents;

import com.fasterxml.jackson.jaxrs.json.JacksonJsonProvider;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import javax.ws.rs.client.Client;
import javax.ws.rs.client.ClientBuilder;
import javax.ws.rs.core.MediaType;
import org.eclipse.persistence.jaxb.rs.MOXyJsonProvider;

/**
 * A gateway to the register of patents: for each request it asks the register for a document as JSON, and answers with XML.
 * Arguments: the address of the register, and how many documents it has; they are asked for in turn. Properties:
 *
 * json: what reads JSON, moxy or jackson; timeout: milliseconds to wait for the register; and those of {@link Xml}.
 */
public final class Gateway {
    private static final int THREADS = 4;
    /** Requests are served only when the code for them is compiled: this many milliseconds of documents come before. */
    private static final int WARM_UP_MILLIS = 5000;

    private final Client client = ClientBuilder.newClient();
    private final Xml xml = new Xml();
    private final String register;

    Gateway(String register) {
        this.register = register;
        client.property("jersey.config.client.readTimeout", Integer.getInteger("timeout", 90_000));
        client.register(System.getProperty("json", "jackson").equals("moxy") ? new MOXyJsonProvider() : new JacksonJsonProvider());
    }

    public static void main(String[] args) throws Exception {
        Gateway gateway = new Gateway(args[0]);
        int documents = Integer.parseInt(args[1]);
        long end = System.nanoTime() + WARM_UP_MILLIS * 1_000_000L;
        for (int n = 0; System.nanoTime() < end; n++) {
            gateway.document(n % documents);
        }
        AtomicInteger requests = new AtomicInteger();
        HttpServer server = HttpServer.create(new InetSocketAddress(8080), 1024);
        server.createContext("/", exchange -> {
            byte[] answer = gateway.document(requests.getAndIncrement() % documents);
            exchange.getResponseHeaders().set("Content-Type", "application/xml");
            exchange.sendResponseHeaders(200, answer.length);
            try (var body = exchange.getResponseBody()) {
                body.write(answer);
            }
        });
        server.setExecutor(pool());
        server.start();
    }

    private static ExecutorService pool() {
        AtomicInteger n = new AtomicInteger();
        return Executors.newFixedThreadPool(THREADS, task -> new Thread(task, "gateway-" + n.incrementAndGet()));
    }

    private byte[] document(int n) {
        return xml.of(ask(n)).getBytes(StandardCharsets.UTF_8);
    }

    private Document ask(int n) {
        return client.target("http://" + register + "/" + n).request(MediaType.APPLICATION_JSON).get(Document.class);
    }
}
