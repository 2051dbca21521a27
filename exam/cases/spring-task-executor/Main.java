import java.io.InputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import org.springframework.scheduling.concurrent.ThreadPoolTaskExecutor;

/** A page that has another service asked by tasks of an executor. */
final class Main {
    public static void main(String[] args) throws Exception {
        ThreadPoolTaskExecutor executor = new ThreadPoolTaskExecutor();
        executor.setMaxPoolSize(32);
        if (args.length > 0) {
            executor.setQueueCapacity(Integer.parseInt(args[0]));
        }
        executor.setThreadNamePrefix("stock-");
        executor.initialize();
        Web.serve("/stock", 32, () -> executor.submit(Main::stock).get());
    }

    private static String stock() throws Exception {
        HttpURLConnection connection = (HttpURLConnection) new URL("http://127.0.0.1:9000/").openConnection();
        try (InputStream answer = connection.getInputStream()) {
            return new String(answer.readAllBytes());
        }
    }
}
