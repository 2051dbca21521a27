package shop.io;

import shop.Load;

/** Each request opens a handle whose class has a finalizer. Cured: the class has none, and is closed. */
public final class Finalizers {
    static class Handle implements AutoCloseable {
        private long position;

        long read(long n) {
            position += n;
            return position;
        }

        @Override
        public void close() {
            position = -1;
        }
    }

    static final class FinalizedHandle extends Handle {
        @Override
        protected void finalize() {
            close();
        }
    }

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("io", 1, n -> Load.sink += Load.price(n, 200) + readOnce(n, sick));
    }

    private static long readOnce(long n, boolean sick) {
        try (Handle handle = open(sick)) {
            return handle.read(n);
        }
    }

    private static Handle open(boolean sick) {
        return sick ? new FinalizedHandle() : new Handle();
    }
}
