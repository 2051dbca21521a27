package patents;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Executors;

/**
 * The register of patents, which is not ours: it answers with a document as JSON within some milliseconds. Arguments: the port, and
 * how many characters the descriptions of its documents have; the n-th document is at /n.
 */
public final class Register {
    private static final int ANSWER_MILLIS = 5;
    private static final int CLAIMS = 36;

    private Register() {
    }

    public static void main(String[] args) throws Exception {
        List<byte[]> documents = new ArrayList<>();
        for (int i = 1; i < args.length; i++) {
            documents.add(new ObjectMapper().writeValueAsBytes(document(i, Integer.parseInt(args[i]))));
        }
        HttpServer server = HttpServer.create(new InetSocketAddress(Integer.parseInt(args[0])), 1024);
        server.createContext("/", exchange -> {
            byte[] json = documents.get(Integer.parseInt(exchange.getRequestURI().getPath().substring(1)) % documents.size());
            pause();
            exchange.getResponseHeaders().set("Content-Type", "application/json");
            exchange.sendResponseHeaders(200, json.length);
            try (var body = exchange.getResponseBody()) {
                body.write(json);
            }
        });
        server.setExecutor(Executors.newFixedThreadPool(16));
        server.start();
    }

    private static void pause() {
        try {
            Thread.sleep(ANSWER_MILLIS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static Document document(int n, int length) {
        Document d = new Document();
        d.number = "EP" + (1_000_000 + n);
        d.title = "A box with a hinged lid";
        d.claims = new ArrayList<>();
        for (int i = 1; i <= CLAIMS; i++) {
            d.claims.add(claim(i));
        }
        StringBuilder text = new StringBuilder(length + 100);
        while (text.length() < length) {
            text.append("the lid is hinged to the body such that it opens by a right angle\n");
        }
        d.description = text.toString();
        return d;
    }

    private static Claim claim(int n) {
        Claim c = new Claim();
        c.number = n;
        c.preamble = "A box as claimed in any of the claims before";
        c.body = "wherein the lid is held by a magnet";
        c.category = Claim.Category.DEVICE;
        c.references = new ArrayList<>();
        Claim.Reference r = new Claim.Reference();
        r.claim = Math.max(1, n - 1);
        r.part = "lid";
        c.references.add(r);
        return c;
    }
}
