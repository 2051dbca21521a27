package shop.reports;

import java.text.SimpleDateFormat;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Date;
import shop.Load;

/** A SimpleDateFormat for each line, because it must not be shared. Cured: a DateTimeFormatter, which may be. */
public final class Dates {
    private static final DateTimeFormatter SHARED = DateTimeFormatter.ofPattern("yyyy-MM-dd HH:mm:ss").withZone(ZoneOffset.UTC);

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("reports", 1, n -> Load.sink += Load.price(n, 200) + (sick ? stampAnew(n) : stamp(n)).length());
    }

    private static String stampAnew(long n) {
        return new SimpleDateFormat("yyyy-MM-dd HH:mm:ss").format(new Date(n));
    }

    private static String stamp(long n) {
        return SHARED.format(Instant.ofEpochMilli(n));
    }
}
