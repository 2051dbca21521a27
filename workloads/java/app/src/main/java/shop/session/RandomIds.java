package shop.session;

import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;
import shop.Load;

/**
 * Four threads name each request with UUID.randomUUID, whose SecureRandom has one lock. Cured: a request's name needs to be
 * unique, not secret: an identifier from a generator of the thread.
 */
public final class RandomIds {
    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("web", 4, n -> Load.sink += handle(n, sick));
    }

    private static long handle(long n, boolean sick) {
        UUID id = sick ? secretId() : cheapId();
        return Load.price(n, 50) + id.getLeastSignificantBits();
    }

    private static UUID secretId() {
        return UUID.randomUUID();
    }

    private static UUID cheapId() {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        return new UUID(random.nextLong(), random.nextLong());
    }
}
