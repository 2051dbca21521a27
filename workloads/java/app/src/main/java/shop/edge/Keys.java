package shop.edge;

import java.util.UUID;
import java.util.concurrent.ThreadLocalRandom;

/** Keys of positions, so that the order service takes none of them twice. They need to be unique, not secret. */
interface Keys {
    UUID next();

    static Keys of(String kind) {
        return kind.equals("uuid") ? Keys::secret : Keys::cheap;
    }

    private static UUID secret() {
        return UUID.randomUUID();
    }

    private static UUID cheap() {
        ThreadLocalRandom random = ThreadLocalRandom.current();
        return new UUID(random.nextLong(), random.nextLong());
    }
}
