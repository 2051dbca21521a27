package booking.fares;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicReferenceArray;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Prices the connections of a search, step by step, and writes them as JSON. */
public final class Fares {
    private static final Logger LOG = LoggerFactory.getLogger(Fares.class);
    private static final ObjectMapper SHARED = new ObjectMapper();
    private static final boolean EACH = System.getProperty("booking.mapper", "shared").equals("each");

    private static final int OFFERS = 60;
    private static final int STEPS = 38;
    /** Of a step: the distances, taxes and reductions that go into it. */
    private static final int POSITIONS = 30;
    /** Bytes for the longest answer, and for the longest offer. */
    private static final int LONGEST = 64 * 1024;
    private static final int LONGEST_OFFER = 16 * 1024;
    private static final String[] STATIONS = {"Basel", "Freiburg", "Offenburg", "Karlsruhe", "Mannheim", "Frankfurt", "Fulda", "Kassel",
        "Hannover", "Berlin"};
    /** As the tariff's service has it. */
    private static final byte[] REDUCTION = "{\"name\":\"half price\",\"percent\":50}".getBytes(StandardCharsets.US_ASCII);

    /** Offers that were shown: who goes back to them finds them again. */
    private static final int SHOWN = 16_800;

    private final Tariffs tariffs = new Tariffs();
    private final AtomicReferenceArray<Offer> shown = new AtomicReferenceArray<>(SHOWN);

    /** As many searches as there are to ask for each route's tariff. */
    public long round() {
        return tariffs.round();
    }

    /** The answer to a search: all offers in one array. */
    public byte[] offers(long search) throws IOException {
        long best = tariffs.best(search);
        ByteArrayOutputStream out = new ByteArrayOutputStream(LONGEST);
        out.write('[');
        for (int i = 0; i < OFFERS; i++) {
            if (i > 0) {
                out.write(',');
            }
            render(offer(search, i, best)).writeTo(out);
        }
        out.write(']');
        return out.toByteArray();
    }

    private Offer offer(long search, int n, long best) {
        Offer offer = new Offer();
        offer.from = STATIONS[0];
        offer.to = STATIONS[STATIONS.length - 1];
        offer.train = "ICE " + (100 + n);
        offer.minutes = 170 + n;
        offer.cents = best + price(search, n);
        offer.classes.add("1");
        offer.classes.add("2");
        for (int i = 0; i < STATIONS.length; i++) {
            offer.legs.add(new Offer.Leg(STATIONS[i], 1 + i % 4, 480 + 20 * i));
        }
        shown.set((int) ((search * OFFERS + n) % SHOWN), offer);
        return offer;
    }

    private long price(long search, int n) {
        long cents = 0;
        for (int step = 0; step < STEPS; step++) {
            cents += step(search * OFFERS + n, step);
            LOG.info("search {} offer {} step {} gives {}", search, n, step, cents);
        }
        return cents;
    }

    private static long step(long seed, int step) {
        long sum = 0;
        long x = (seed + step) * 0x9E3779B97F4A7C15L + 1;
        for (int i = 0; i < POSITIONS; i++) {
            x ^= x << 13;
            x ^= x >>> 7;
            x ^= x << 17;
            sum += (x & 0xFFFF) % 997;
        }
        return sum;
    }

    private ByteArrayOutputStream render(Offer offer) throws IOException {
        if (offer.minutes % 2 == 0) { // the trains for which the reduction is sold
            offer.cents -= offer.cents * mapper().readValue(REDUCTION, Reduction.class).percent / 100;
        }
        ByteArrayOutputStream text = new ByteArrayOutputStream(LONGEST_OFFER);
        mapper().writeValue(text, offer);
        return text;
    }

    private ObjectMapper mapper() {
        return EACH ? new ObjectMapper() : SHARED;
    }
}
