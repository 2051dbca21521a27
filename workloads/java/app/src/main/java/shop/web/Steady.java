package shop.web;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetSocketAddress;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.builder.api.ConfigurationBuilder;
import org.apache.logging.log4j.core.config.builder.api.ConfigurationBuilderFactory;
import org.apache.logging.log4j.core.config.builder.impl.BuiltConfiguration;
import shop.Load;

/**
 * A service as it should be, at 127.0.0.1:8080: sixteen threads read an order with one shared ObjectMapper, price it, answer with
 * JSON, and log at level WARN to an asynchronous appender: a line for one order in five hundred. There is nothing to cure.
 */
public final class Steady {
    public static final class Order {
        public long number;
        public String customer;
        public List<Line> lines;
        public long cents;
    }

    public static final class Line {
        public String item;
        public int pieces;
    }

    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String BODY = "{\"number\":4711,\"customer\":\"Ada\",\"lines\":[{\"item\":\"kettle\",\"pieces\":2},"
        + "{\"item\":\"cup\",\"pieces\":12},{\"item\":\"pot\",\"pieces\":1}],\"cents\":0}";
    private static final AtomicInteger threads = new AtomicInteger();

    private final Logger log = LogManager.getLogger("shop.web");

    public static void main(String[] args) throws IOException {
        configureLog();
        Steady service = new Steady();
        ExecutorService pool = Executors.newFixedThreadPool(16, r -> new Thread(r, "http-worker-" + threads.incrementAndGet()));
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8080), 1024);
        server.createContext("/", service::handle);
        server.setExecutor(pool);
        server.start();
    }

    private void handle(HttpExchange exchange) throws IOException {
        byte[] answer = answer(exchange.getRequestURI().getPath());
        exchange.sendResponseHeaders(200, answer.length);
        try (OutputStream body = exchange.getResponseBody()) {
            body.write(answer);
        }
    }

    private byte[] answer(String path) throws IOException {
        Order order = JSON.readValue(BODY, Order.class);
        for (Line line : order.lines) {
            order.cents += Load.price(line.pieces, 2000);
        }
        log.info("order {} at {} costs {}", order.number, path, order.cents);
        if (Load.random(500) == 0) {
            log.warn("order {} is large", order.number);
        }
        return JSON.writeValueAsBytes(order);
    }

    /** Lines go to /dev/null behind a queue. */
    private static void configureLog() {
        ConfigurationBuilder<BuiltConfiguration> b = ConfigurationBuilderFactory.newConfigurationBuilder();
        b.add(b.newAppender("file", "File").addAttribute("fileName", "/dev/null")
            .add(b.newLayout("PatternLayout").addAttribute("pattern", "%-5p %c{1} - %m%n")));
        b.add(b.newAppender("queue", "Async").addComponent(b.newAppenderRef("file")));
        b.add(b.newRootLogger(Level.WARN).add(b.newAppenderRef("queue")));
        Configurator.initialize(b.build());
    }
}
