package shop.io;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.zip.Deflater;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;
import shop.Load;

/**
 * A cache compresses what it keeps, at the highest level, and unpacks it for each reader. Cured: entries of this size are
 * kept as they are.
 */
public final class Zip {
    private static final byte[] PAGE = page();

    public static void main(String[] args) {
        boolean sick = Load.sick(args);
        Load.run("cache", 1, n -> Load.sink += Load.price(n, 2000) + (sick ? get(put(PAGE)) : PAGE).length);
    }

    private static byte[] put(byte[] page) throws IOException {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        try (GZIPOutputStream zip = new GZIPOutputStream(out) {
            {
                def.setLevel(Deflater.BEST_COMPRESSION);
            }
        }) {
            zip.write(page);
        }
        return out.toByteArray();
    }

    private static byte[] get(byte[] kept) throws IOException {
        try (GZIPInputStream zip = new GZIPInputStream(new ByteArrayInputStream(kept))) {
            return zip.readAllBytes();
        }
    }

    private static byte[] page() {
        StringBuilder text = new StringBuilder();
        for (int i = 0; text.length() < 8192; i++) {
            text.append("<li>item ").append(Load.price(i, 10)).append("</li>");
        }
        return text.toString().getBytes();
    }
}
