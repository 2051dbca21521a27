package shop.catalog;

import java.util.HashMap;
import java.util.Map;
import shop.Load;

/** A key of two numbers has a hash code in which they cancel each other out. Cured: one in which they do not. */
public final class HashCollisions {
    private static final int SIZES = 40;

    static final class Key {
        final int width;
        final int height;
        final boolean sick;

        Key(int width, int height, boolean sick) {
            this.width = width;
            this.height = height;
            this.sick = sick;
        }

        @Override
        public int hashCode() {
            return sick ? (width ^ height) & 1 : 31 * width + height;
        }

        @Override
        public boolean equals(Object o) {
            return o instanceof Key && ((Key) o).width == width && ((Key) o).height == height;
        }
    }

    private final Map<Key, Integer> prices = new HashMap<>();

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        HashCollisions catalog = new HashCollisions();
        for (int i = 0; i < SIZES * SIZES; i++) {
            catalog.prices.put(new Key(i / SIZES, i % SIZES, sick), i);
        }
        Load.run("catalog", 1, n -> Load.sink += Load.price(n, 200) + catalog.lookUp((int) (n % SIZES), sick));
    }

    private long lookUp(int i, boolean sick) {
        return prices.get(new Key(i, SIZES - 1 - i, sick));
    }
}
