package shop.routes;

/** A line of a message. */
class Line implements Priced, Taxed {
    private final int number;

    Line(int number) {
        this.number = number;
    }

    @Override
    public long price() {
        return 49 + number % 7;
    }

    @Override
    public long tax() {
        return 7;
    }

    static final class Gift extends Line {
        Gift(int number) {
            super(number);
        }

        @Override
        public long price() {
            return 0;
        }
    }

    static final class Return extends Line {
        Return(int number) {
            super(number);
        }

        @Override
        public long price() {
            return -super.price();
        }
    }

    /** Lines of all kinds, and a comment, which is no line. */
    static Object[] some(int count) {
        Object[] lines = new Object[count];
        for (int i = 0; i < count; i++) {
            lines[i] = i % 3 == 0 ? new Line(i) : i % 3 == 1 ? new Gift(i) : new Return(i);
        }
        lines[count - 1] = "a comment";
        return lines;
    }
}
