package shop.edge;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpServerCodec;

/**
 * A gateway before an order service: four event loops at 127.0.0.1:8080 (Netty's choice for two CPUs) take an order, give each of
 * its positions a key, ask the stock at 127.0.0.1:9000 and answer. What may be wrong with it are properties:
 * <ul>
 * <li>stock.client: blocking (a socket that is read on the event loop) or async
 * <li>keys: uuid (one SecureRandom of the process) or counter (unique, and no secret)
 * <li>log.level: INFO (a line for each step of a request) or ERROR
 * <li>log.appender: direct, or async (a queue, and a thread that writes)
 * </ul>
 */
public final class Gateway {
    public static void main(String[] args) throws Exception {
        AccessLog log = new AccessLog(System.getProperty("log.level", "ERROR"), System.getProperty("log.appender", "direct"));
        boolean blocking = System.getProperty("stock.client", "async").equals("blocking");
        Keys keys = Keys.of(System.getProperty("keys", "counter"));
        new ServerBootstrap()
            .group(new NioEventLoopGroup(1), new NioEventLoopGroup(4))
            .channel(NioServerSocketChannel.class)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel channel) {
                    Stock stock = blocking ? new BlockingStock() : new AsyncStock();
                    channel.pipeline().addLast(new HttpServerCodec(), new HttpObjectAggregator(65536), new Orders(stock, keys, log));
                }
            })
            .bind("127.0.0.1", 8080).sync().channel().closeFuture().sync();
    }
}
