package shop.io;

import java.nio.ByteBuffer;
import shop.Load;

/**
 * Three threads write each order into a direct buffer of a megabyte that they make for it. Its memory is free only once
 * the collector finds the buffer, and the heap fills slowly. Cured: each thread has one buffer.
 */
public final class DirectBuffers {
    private static final int SIZE = 1 << 20;
    private static final ThreadLocal<ByteBuffer> own = ThreadLocal.withInitial(() -> ByteBuffer.allocateDirect(SIZE));

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("orders", 3, n -> Load.sink += write(sick ? ByteBuffer.allocateDirect(SIZE) : own.get(), n));
    }

    private static long write(ByteBuffer buffer, long order) {
        buffer.clear();
        buffer.putLong(Load.price(order, 5000));
        return buffer.position();
    }
}
