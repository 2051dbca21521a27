package shop.audit;

import org.apache.logging.log4j.Level;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.apache.logging.log4j.core.config.Configurator;
import org.apache.logging.log4j.core.config.builder.api.ConfigurationBuilder;
import org.apache.logging.log4j.core.config.builder.api.ConfigurationBuilderFactory;
import org.apache.logging.log4j.core.config.builder.impl.BuiltConfiguration;
import shop.Load;

/**
 * Log4j 2 writes a line for each order, to /dev/null: a million a second would fill a disk. Arguments: sick or cured, then what is wrong:
 * <ul>
 * <li>location: the pattern asks for the caller's line, which needs a stack trace. Cured: it does not.
 * <li>level: three threads write INFO lines. Cured: the level is WARN, and the message is not even built.
 * </ul>
 */
public final class Log4j {
    private static final String PLAIN = "%-5p %c{1} - %m%n";
    private static final String LOCATED = "%-5p %C{1}.%M:%L - %m%n";

    private final Logger log;
    private final int positions;

    Log4j(Logger log, int positions) {
        this.log = log;
        this.positions = positions;
    }

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        boolean location = args[1].equals("location");
        configure(sick && location ? LOCATED : PLAIN, sick || location ? Level.INFO : Level.WARN);
        Log4j orders = new Log4j(LogManager.getLogger("shop.orders"), location ? 3000 : 300);
        Load.run("orders", location ? 1 : 3, n -> Load.sink += orders.place(n));
    }

    private long place(long n) {
        long price = Load.price(n, positions);
        confirm(n);
        return price;
    }

    private void confirm(long n) {
        log.info("order {} placed", n);
    }

    private static void configure(String pattern, Level level) {
        ConfigurationBuilder<BuiltConfiguration> b = ConfigurationBuilderFactory.newConfigurationBuilder();
        b.add(b.newAppender("file", "File").addAttribute("fileName", "/dev/null").addAttribute("immediateFlush", false)
            .add(b.newLayout("PatternLayout").addAttribute("pattern", pattern)));
        b.add(b.newRootLogger(level).add(b.newAppenderRef("file")));
        Configurator.initialize(b.build());
    }
}
