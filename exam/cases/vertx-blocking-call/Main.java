import io.vertx.core.AbstractVerticle;
import io.vertx.core.Vertx;
import java.io.IOException;
import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URL;

/** A page on Vert.x that asks another service with the client of the JDK. */
public final class Main extends AbstractVerticle {
    private final boolean worker;

    private Main(boolean worker) {
        this.worker = worker;
    }

    public static void main(String[] args) {
        Vertx.vertx().deployVerticle(new Main(args[0].equals("1")));
    }

    @Override
    public void start() {
        vertx.createHttpServer().requestHandler(request -> {
            if (worker) {
                vertx.executeBlocking(Main::stock, false).onSuccess(request.response()::end);
                return;
            }
            try {
                request.response().end(stock());
            } catch (IOException e) {
                request.response().setStatusCode(503).end();
            }
        }).listen(8080, "127.0.0.1");
    }

    private static String stock() throws IOException {
        HttpURLConnection connection = (HttpURLConnection) new URL("http://127.0.0.1:9000/").openConnection();
        try (InputStream answer = connection.getInputStream()) {
            return new String(answer.readAllBytes());
        }
    }
}
