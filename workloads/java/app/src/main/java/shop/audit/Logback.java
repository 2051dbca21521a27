package shop.audit;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.encoder.PatternLayoutEncoder;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.FileAppender;
import org.slf4j.LoggerFactory;
import shop.Load;

/** Logback writes a line for each order of three threads, under one lock. Cured: the level is WARN. */
public final class Logback {
    private final Logger log;

    Logback(Logger log) {
        this.log = log;
    }

    public static void main(String[] args) {
        Logback orders = new Logback(configure(Load.sick(args) ? Level.INFO : Level.WARN));
        Load.run("orders", 3, n -> Load.sink += orders.place(n));
    }

    private long place(long n) {
        long price = Load.price(n, 500);
        confirm(n, price);
        return price;
    }

    private void confirm(long n, long price) {
        log.info("order {} placed for {} cents", n, price);
    }

    private static Logger configure(Level level) {
        LoggerContext context = (LoggerContext) LoggerFactory.getILoggerFactory();
        context.reset();
        PatternLayoutEncoder encoder = new PatternLayoutEncoder();
        encoder.setContext(context);
        encoder.setPattern("%d{HH:mm:ss.SSS} %-5level [%thread] %logger{1} - %msg%n");
        encoder.start();
        FileAppender<ILoggingEvent> file = new FileAppender<>();
        file.setContext(context);
        file.setEncoder(encoder);
        file.setFile("app.log");
        file.start();
        Logger log = context.getLogger("shop.orders");
        log.addAppender(file);
        log.setLevel(level);
        return log;
    }
}
