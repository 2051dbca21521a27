package shop.rules;

/** A rule that is loaded as a plug-in. */
public class Tariff implements java.util.function.LongUnaryOperator {
    @Override
    public long applyAsLong(long price) {
        return price * 119 / 100;
    }
}
