package shop.edge;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.builder.api.ConfigurationBuilder;
import org.apache.logging.log4j.core.config.builder.api.ConfigurationBuilderFactory;
import org.apache.logging.log4j.core.config.builder.impl.BuiltConfiguration;

/** Log4j 2 with a file in the working directory, written by the thread that logs, or behind a queue. */
final class AccessLog {
    private final Logger log;

    AccessLog(String level, String appender) {
        configure(level, appender);
        log = LogManager.getLogger("shop.edge");
    }

    void step(String filter, String path) {
        log.info("filter {} begins for {}", filter, path);
        log.info("filter {} done for {}", filter, path);
    }

    private static void configure(String level, String appender) {
        ConfigurationBuilder<BuiltConfiguration> b = ConfigurationBuilderFactory.newConfigurationBuilder();
        b.add(b.newAppender("file", "File").addAttribute("fileName", "gateway.log")
            .add(b.newLayout("PatternLayout").addAttribute("pattern", "%d{ISO8601} %-5p [%t] %c{1} - %m%n")));
        b.add(b.newAppender("queue", "Async").addComponent(b.newAppenderRef("file")));
        b.add(b.newRootLogger(Level.valueOf(level)).add(b.newAppenderRef(appender.equals("async") ? "queue" : "file")));
        Configurator.initialize(b.build());
    }
}
