package shop.edge;

import io.netty.bootstrap.Bootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.handler.codec.FixedLengthFrameDecoder;
import io.netty.channel.ChannelOption;
import io.netty.channel.SimpleChannelInboundHandler;
import java.util.ArrayDeque;
import java.util.function.LongConsumer;

/** A client on the event loop of the gateway's own client: it asks, and is called when the answer is there. */
final class AsyncStock extends SimpleChannelInboundHandler<ByteBuf> implements Stock {
    private final ArrayDeque<LongConsumer> waiting = new ArrayDeque<>();
    private Channel backend;

    @Override
    public void open(Channel client) {
        backend = new Bootstrap()
            .group(client.eventLoop())
            .channel(NioSocketChannel.class)
            .option(ChannelOption.TCP_NODELAY, true)
            .handler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel channel) {
                    channel.pipeline().addLast(new FixedLengthFrameDecoder(BYTES), AsyncStock.this);
                }
            })
            .connect(HOST, PORT).channel();
        backend.closeFuture().addListener(closed -> client.close());
    }

    @Override
    public void ask(LongConsumer answer) {
        waiting.add(answer);
        if (backend.isActive()) {
            backend.writeAndFlush(question());
        }
    }

    /** What was asked before the connection stood is asked now. */
    @Override
    public void channelActive(ChannelHandlerContext context) {
        waiting.forEach(answer -> context.writeAndFlush(question()));
    }

    @Override
    protected void channelRead0(ChannelHandlerContext context, ByteBuf message) {
        waiting.remove().accept(message.getByte(0));
    }

    private static ByteBuf question() {
        return Unpooled.wrappedBuffer(new byte[BYTES]);
    }

    @Override
    public void close() {
        backend.close();
    }
}
