package shop.gateway;

import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.channel.nio.NioEventLoopGroup;
import io.netty.channel.socket.SocketChannel;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.util.concurrent.DefaultEventExecutorGroup;
import io.netty.util.concurrent.EventExecutorGroup;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import shop.Load;

/**
 * A Netty server with two event loops asks a backend for each request, with a socket that blocks. The backend is at
 * 127.0.0.1:9000. Cured: the handler runs on a pool of 32 threads, off the event loops.
 */
public final class EventLoop {
    public static void main(String[] args) throws Exception {
        EventExecutorGroup pool = Load.sick(args) ? null : new DefaultEventExecutorGroup(32);
        new ServerBootstrap()
            .group(new NioEventLoopGroup(1), new NioEventLoopGroup(2))
            .channel(NioServerSocketChannel.class)
            .childHandler(new ChannelInitializer<SocketChannel>() {
                @Override
                protected void initChannel(SocketChannel channel) {
                    channel.pipeline().addLast(new HttpServerCodec(), new HttpObjectAggregator(65536));
                    channel.pipeline().addLast(pool, new Orders());
                }
            })
            .bind("127.0.0.1", 8080).sync().channel().closeFuture().sync();
    }

    static final class Orders extends SimpleChannelInboundHandler<FullHttpRequest> {
        private Backend backend;

        @Override
        public void channelActive(ChannelHandlerContext context) throws IOException {
            backend = new Backend("127.0.0.1", 9000);
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) throws IOException {
            backend.close();
        }

        @Override
        protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) throws IOException {
            long stock = askStock();
            byte[] text = ("in stock: " + stock).getBytes(StandardCharsets.US_ASCII);
            DefaultFullHttpResponse answer =
                new DefaultFullHttpResponse(HttpVersion.HTTP_1_1, HttpResponseStatus.OK, Unpooled.wrappedBuffer(text));
            answer.headers().set("content-length", text.length);
            context.writeAndFlush(answer);
        }

        private long askStock() throws IOException {
            return backend.ask();
        }
    }
}
