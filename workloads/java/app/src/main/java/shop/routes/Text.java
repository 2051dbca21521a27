package shop.routes;

/** A message as text, in a buffer that is used again: a line is its price, its tax and their sum. */
final class Text {
    private final byte[] bytes = new byte[64 << 10];
    private int length;

    void write(Object[] lines, int rate) {
        length = 0;
        for (Object o : lines) {
            if (o instanceof Line) {
                Line line = (Line) o;
                number(line.price());
                number(line.tax());
                number(line.price() * rate + line.tax());
                bytes[length++] = '\n';
            }
        }
    }

    /** Digits from the last to the first, which a reader turns round, and a semicolon. */
    private void number(long n) {
        if (n < 0) {
            bytes[length++] = '-';
            n = -n;
        }
        do {
            bytes[length++] = (byte) ('0' + n % 10);
            n /= 10;
        } while (n > 0);
        bytes[length++] = ';';
    }

    byte[] bytes() {
        return bytes;
    }

    int length() {
        return length;
    }
}
