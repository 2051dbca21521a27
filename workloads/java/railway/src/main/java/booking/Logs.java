package booking;

import ch.qos.logback.classic.Level;
import ch.qos.logback.classic.Logger;
import ch.qos.logback.classic.LoggerContext;
import ch.qos.logback.classic.encoder.PatternLayoutEncoder;
import ch.qos.logback.classic.spi.ILoggingEvent;
import ch.qos.logback.core.FileAppender;
import org.slf4j.LoggerFactory;

/** Logback, to /dev/null: what the service writes in an hour would fill a disk. */
final class Logs {
    private Logs() {
    }

    static void configure(String level) {
        LoggerContext context = (LoggerContext) LoggerFactory.getILoggerFactory();
        context.reset();
        PatternLayoutEncoder line = new PatternLayoutEncoder();
        line.setContext(context);
        line.setPattern("%d %-5level [%thread] %logger{20} - %msg%n");
        line.start();
        FileAppender<ILoggingEvent> file = new FileAppender<>();
        file.setContext(context);
        file.setEncoder(line);
        file.setFile("/dev/null");
        file.setImmediateFlush(false);
        file.start();
        Logger root = context.getLogger(Logger.ROOT_LOGGER_NAME);
        root.setLevel(Level.WARN);
        root.addAppender(file);
        context.getLogger("booking").setLevel(Level.toLevel(level));
    }
}
