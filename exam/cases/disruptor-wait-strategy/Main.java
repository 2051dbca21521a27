import com.lmax.disruptor.BlockingWaitStrategy;
import com.lmax.disruptor.BusySpinWaitStrategy;
import com.lmax.disruptor.WaitStrategy;
import com.lmax.disruptor.dsl.Disruptor;
import com.lmax.disruptor.dsl.ProducerType;
import com.lmax.disruptor.util.DaemonThreadFactory;
import java.util.concurrent.CompletableFuture;

/** An order goes through the ring buffer: journal and replicator side by side, then the business logic. */
final class Main {
    /** A slot of the ring. */
    static final class Order {
        CompletableFuture<String> done;
        int journalled;
        int replicated;
    }

    public static void main(String[] args) throws Exception {
        WaitStrategy waiting = args[0].equals("1") ? new BusySpinWaitStrategy() : new BlockingWaitStrategy();
        Disruptor<Order> disruptor =
            new Disruptor<>(Order::new, 1024, DaemonThreadFactory.INSTANCE, ProducerType.MULTI, waiting);
        disruptor
            .handleEventsWith((order, sequence, last) -> order.journalled = order.done.hashCode(),
                (order, sequence, last) -> order.replicated = order.done.hashCode())
            .then((order, sequence, last) ->
                order.done.complete("order " + order.journalled + order.replicated + "\n"));
        disruptor.start();
        Web.serve("/order", 8, () -> {
            CompletableFuture<String> done = new CompletableFuture<>();
            disruptor.publishEvent((order, sequence) -> order.done = done);
            return done.get();
        });
    }
}
